"""Share consumers (KIP-932) at work beside all else, and what their groups may do with records."""
