"""What plugins and errors say reaches journal and terminal in a form that they hold."""

from harness.base.messages import printable, storable


def test_a_stored_text_is_encodable_short_and_says_how_much_it_lacks():
    for text in ("aé\ud800\udfff\n\U0001f600" * 500, "\udcff" * 50, "x" * 61):
        stored = storable(text, 60)
        stored.encode()
        assert len(stored) <= 60
        assert storable(stored, 60) == stored
        kept, _, count = stored.rpartition(" … (")
        assert kept == text.encode(errors="backslashreplace").decode()[: -int(count.split()[0].replace(",", ""))]


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z") == r"a\x00\x1b]0;title\x07\r\x9b31m\u202e\ud800z"
