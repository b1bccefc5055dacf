"""The HTML report: one self-contained page, computed first and rendered then.

``grid`` and ``record`` hold what is computed; ``words``, ``charts`` and the other views turn it
into text and places; ``page`` renders the template.
"""
