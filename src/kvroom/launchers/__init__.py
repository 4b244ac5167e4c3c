"""How a deployment is started: commands, manifests and charts, read and written."""
