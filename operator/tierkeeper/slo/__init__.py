"""Histograms in, an assessment out: error-ratio bounds, burn over windows, signal states. Pure."""
