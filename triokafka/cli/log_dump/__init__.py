"""What ``triokafka log dump`` prints, one module per kind of file. Reads only; never repairs anything."""
