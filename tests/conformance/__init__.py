"""What other people's clients must find in a broker: scenarios written once, drivers for the clients, and results."""
