"""What the operator's image is made of: its bill of materials and the licences of its dependencies."""
