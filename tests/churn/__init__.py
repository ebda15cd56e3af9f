"""Applications that live on compacted topics, for as long as one likes."""
