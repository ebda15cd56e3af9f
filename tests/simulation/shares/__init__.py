"""Share consumers (KIP-932) at work beside everything else, and what their groups may do with records."""
