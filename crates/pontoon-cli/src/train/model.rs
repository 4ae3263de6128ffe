//! The network, its gradients in fixed shards, its update, its digest.
