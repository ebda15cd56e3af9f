"""What a controller serves to the cluster's brokers, at listeners of its own."""
