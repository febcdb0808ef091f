"""A stand-in for the Hugging Face hub: serves model repositories with the hub's own routes and access rules."""
