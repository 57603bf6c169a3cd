"""One writer of many, as a process: `python -m tests.infra.archive.appender URL WRITER FIRST COMMITS`.

It appends rows FIRST, FIRST + 1, ... one commit each, and prints the number of a row once its commit was confirmed.
"""

import sys

from infra.archive.archive import Archive
from tests.infra.archive.builders import ITEMS, items


def main(url: str, writer: str, first: int, commits: int) -> None:
    archive = Archive(url, writer)
    print("ready", flush=True)
    sys.stdin.readline()
    for doc in range(first, first + commits):
        with archive.transaction() as transaction:
            transaction.append(ITEMS, items([doc]))
            transaction.put_blob(f"{doc}.txt", b"%d" % doc)
        print(doc, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
