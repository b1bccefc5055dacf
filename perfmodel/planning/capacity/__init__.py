"""How many GPUs a load needs: deployments searched, sized, priced, and confirmed by simulation."""
