"""What stands around the product where there is no cluster, no registry and no GPU. README.md lists the parts."""
