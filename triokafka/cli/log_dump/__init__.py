"""The output of ``triokafka log dump``, one module per file type. Read-only; it never repairs a file."""
