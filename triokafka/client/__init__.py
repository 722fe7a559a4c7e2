"""The client SDK: producer, consumer, admin client and the reader of offset ranges. Import their names from
`triokafka`."""
