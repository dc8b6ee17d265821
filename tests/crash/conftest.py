"""The enumerations tell at the end of a run how many cases they went through."""

import pytest


@pytest.fixture
def tally(record_property):
    """Call it with a sentence; it is printed in the summary, also when tests run in parallel."""
    return lambda sentence: record_property("enumeration", sentence)


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    sentences = [
        text for report in reports for key, text in report.user_properties if key == "enumeration"
    ]
    if sentences:
        terminalreporter.section("enumerations")
        for sentence in sentences:
            terminalreporter.write_line(sentence)
