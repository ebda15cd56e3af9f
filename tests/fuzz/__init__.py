"""What reads bytes of clients that nobody knows yet, or files with keys, fed with damaged ones."""
