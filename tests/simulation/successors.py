"""Crews that are made next to a crew of threads, for tests that lose or stop them."""


def change_successors(crew, change):
    """From now on change(successor) is called for each crew that is made next to this one."""
    another = crew.another

    def made(size, number):
        successor = another(size, number)
        change(successor)
        return successor

    crew.another = made


def cannot_lead(crew, error):
    """No crew that is made next to this one can lead."""

    def lead():
        raise error

    change_successors(crew, lambda successor: setattr(successor, "lead", lead))
