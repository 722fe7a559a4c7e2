"""What coordinators and the controller keep on disk, in Kafka's formats, declared like the messages of the wire."""
