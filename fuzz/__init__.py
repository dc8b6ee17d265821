"""Hostile bytes: fuzz targets for everything that is decoded from files or the wire.

    operators     the operators whose footprints are fuzzed, and an honest stream for them
    checksums     making checksums right again, so that they do not stop hostile fields at the door
    inputs        what a fuzzed input of several parts looks like, as bytes
    logs          honest logs, to be damaged
    targets       the targets: functions of bytes that may raise nothing
    seeds         inputs from honest logs, to begin from
    mutations     changes that keep an input's structure
    child, run    one target under atheris; all of them, with a table at the end

Nothing here is part of the package that users install.
"""
