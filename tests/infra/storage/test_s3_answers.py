"""What S3 may answer to a conditional create, and what it means."""

import pytest

from infra.storage.errors import PermanentStorageError, TransientStorageError
from infra.storage.objects import create_exclusive, list_names, read_or_none, replace
from tests.infra.storage.s3_server import S3, lose_the_reply, refuse

pytestmark = pytest.mark.s3

CONFLICT = refuse("409 Conflict", "ConditionalRequestConflict")
BROKEN = refuse("503 Service Unavailable", "ServiceUnavailable")


def test_a_create_whose_reply_was_lost_is_recognised_as_own_success(s3: S3) -> None:
    s3.server.faults.append(lose_the_reply)
    before = s3.server.creates
    assert create_exclusive(f"{s3.root}/x", b"mine")
    assert s3.server.creates == before + 2, "the reply was lost, so the request must have been sent twice"


def test_a_lost_reply_does_not_claim_somebody_elses_object(s3: S3) -> None:
    replace(f"{s3.root}/x", b"theirs")
    s3.server.faults.append(lose_the_reply)
    assert not create_exclusive(f"{s3.root}/x", b"mine")
    assert read_or_none(f"{s3.root}/x") == b"theirs"


def test_a_conflict_is_no_proof_that_the_object_exists(s3: S3) -> None:
    s3.server.faults.extend([CONFLICT, CONFLICT])
    assert create_exclusive(f"{s3.root}/x", b"mine")
    assert read_or_none(f"{s3.root}/x") == b"mine"


def test_a_conflict_with_a_create_that_won_is_a_loss(s3: S3) -> None:
    replace(f"{s3.root}/x", b"theirs")
    s3.server.faults.append(CONFLICT)
    assert not create_exclusive(f"{s3.root}/x", b"mine")


def test_endless_conflicts_end_in_a_transient_error(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.storage.errors.FIRST_WAIT_S", 0.001)
    s3.server.faults.extend([CONFLICT] * 50)
    with pytest.raises(TransientStorageError, match=r"can't create s3://.*conflicted"):
        create_exclusive(f"{s3.root}/x", b"mine")


def test_a_server_that_is_away_for_a_moment_is_waited_for(s3: S3) -> None:
    s3.server.faults.extend([BROKEN] * 2)
    assert create_exclusive(f"{s3.root}/x", b"mine")


def test_a_missing_bucket_is_named_and_is_not_an_empty_store(s3: S3) -> None:
    for ask in (read_or_none, list_names):
        with pytest.raises(PermanentStorageError, match=r"s3://no-such-bucket/x: the bucket does not exist; create it"):
            ask("s3://no-such-bucket/x")
    with pytest.raises(PermanentStorageError, match="the bucket does not exist"):
        create_exclusive("s3://no-such-bucket/x", b"")


def test_refused_credentials_are_named(s3: S3) -> None:
    s3.server.faults.append(refuse("403 Forbidden", "AccessDenied"))
    with pytest.raises(PermanentStorageError, match=r"credentials do not allow it \(AccessDenied\); check"):
        create_exclusive(f"{s3.root}/x", b"mine")
