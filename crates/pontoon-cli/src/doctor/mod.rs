//! What this machine has, what each part is for, and how to get what is missing.
