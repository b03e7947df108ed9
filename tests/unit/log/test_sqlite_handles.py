"""Several handles of one SQLite log: opened at the same time, through a link, and after another one was killed."""

from livegnn.log import open_log


def test_a_link_names_the_log_that_it_leads_to(tmp_path):
    path, link = tmp_path / "history.db", tmp_path / "links" / "other.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with open_log(f"sqlite:{link}") as log:
        log.append(b"first")
    with open_log(f"sqlite:{path}") as log, open_log(f"sqlite:{link}") as linked:
        assert linked.append(b"second") == 1
        assert [entry.payload for entry in log.read()] == [b"first", b"second"]
    assert [each.name for each in link.parent.iterdir()] == [link.name]
