"""Networks and activations to compare units in.  The core never imports this."""
