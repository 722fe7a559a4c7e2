"""The diagrams of the documentation, as SVG in one style: ``python -m docs.diagrams`` draws them all.

`svg` has the shapes and colours, `sequence` and `timeline` the two layouts, `catalogue` what each diagram says, and
`recorded` makes the simulated runs whose data two of them show.
"""
