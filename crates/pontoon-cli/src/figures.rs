//! Measured figures: collected, reduced to median, p99 and minimum, printed for people or as JSON.
