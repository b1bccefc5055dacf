"""What to change about a deployment, and what that gains and costs."""
