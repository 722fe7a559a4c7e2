"""What the broker measures: the catalogue of metrics, what requests cost, and the endpoint that shows them."""
