//! Labelled samples from CSV or CSV.gz.
