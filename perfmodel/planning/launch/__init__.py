"""An engine's launch command for a deployment, in the engine's own words."""
