"""The sticky assignor."""
