"""HTTP API and the one web page; needs the extra `serve`, which the modules here import where they are used."""
