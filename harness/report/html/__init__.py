"""Pages: one HTML file each, without external parts."""
