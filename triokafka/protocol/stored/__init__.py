"""Records that coordinators and the controller store, in Kafka's formats, declared like the messages of the wire."""
