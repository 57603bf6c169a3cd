"""What is decided about Slurm jobs, without a Slurm: options, words, reasons, the shared look."""

import os
import threading
import time
from pathlib import Path

import pytest

from infra.artifacts.store import ArtifactStore
from infra.dispatch.backend import EngineUnavailable
from infra.dispatch.endings import Ending
from infra.dispatch.engines.choice import connect
from infra.dispatch.engines.slurm import script
from infra.dispatch.engines.slurm.config import Lane, SlurmConfig
from infra.dispatch.engines.slurm.queue import OVER, Queue, Row, parse, parse_account
from infra.dispatch.engines.slurm.verdict import is_unsatisfiable, unstarted, word_of
from infra.dispatch.job import GIB, Attempt, Job, Resources, Timeouts, job_id
from tests.infra.dispatch.builders import job_of
from tests.infra.dispatch.programs import CountConfig, count

CONFIG = SlurmConfig(cluster="lab", folder="/shared/seaway")


@pytest.fixture
def job(store: ArtifactStore) -> Job:
    return job_of(store, count, CountConfig())


def options_of(job: Job, resources: Resources, config: SlurmConfig = CONFIG, wall_s: float | None = None) -> list[str]:
    changed = job.model_copy(update={"resources": resources, "timeouts": Timeouts(wall_s=wall_s, kill_grace_s=10)})
    return script.options(config, changed, Attempt(2, "a" * 16), "/shared/log.txt")


def row(state: str, reason: str = "None", restarts: int = 0) -> Row:
    return Row("7", state, restarts, "name", "uid", reason)


def test_a_job_is_found_by_name_and_uid_runs_once_and_is_never_requeued(job: Job):
    found = options_of(job, Resources())
    assert {f"--job-name={job_id(job, 2)}", f"--comment={'a' * 16}", "--dependency=singleton", "--no-requeue"} <= set(found)


def test_a_gang_of_gpus_asks_for_whole_hosts_by_type(job: Job):
    found = options_of(job, Resources(device="h100x16", cpus=3, memory_bytes=100 * GIB + 1))
    assert {"--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=24", "--gres=gpu:h100:8", "--mem=102401M"} <= set(found)


def test_a_part_of_a_host_asks_for_its_chips_alone_and_a_lab_names_its_own_gres(job: Job):
    config = CONFIG.model_copy(update={"gres": {"h100": "gpu"}})
    assert "--gres=gpu:2" in options_of(job, Resources(device="h100x2"), config)


def test_a_cpu_gang_asks_for_no_gres(job: Job):
    assert not any("gres" in option for option in options_of(job, Resources(device="cpux3")))


def test_slurms_time_limit_is_only_the_second_net(job: Job):
    assert "--time=12" in options_of(job, Resources(), wall_s=400)
    assert not any(option.startswith("--time") for option in options_of(job, Resources()))


def test_a_band_is_a_partition_a_qos_an_account_and_whatever_else_a_lab_needs(job: Job):
    lane = Lane(partition="prod", qos="high", account="llm", arguments=("--reservation=r",))
    config = CONFIG.model_copy(update={"bands": {"production": lane}})
    assert options_of(job, Resources(band="production"), config)[-4:] == [
        "--partition=prod",
        "--qos=high",
        "--account=llm",
        "--reservation=r",
    ]
    assert not any(option.startswith("--partition") for option in options_of(job, Resources(band="batch"), config))


@pytest.mark.parametrize(
    ("racks", "device", "option"),
    [
        ("block", "gb200x64", "--segment=16"),
        ("block", "gb200x96", "--segment=12"),
        ("tree", "gb200x96", "--switches=2@7-00:00:00"),
    ],
)
def test_hosts_that_share_an_nvlink_domain_are_asked_for_in_slurms_terms(job: Job, racks: str, device: str, option: str):
    assert option in options_of(job, Resources(device=device), CONFIG.model_copy(update={"racks": racks}))


@pytest.mark.parametrize("device", ["v4-8", "gb200x64"])
def test_what_slurm_can_never_place_is_refused_from_the_config_alone(device: str):
    assert device in (CONFIG.refusal(Resources(device=device)) or "")


def test_one_tray_needs_no_rack():
    assert CONFIG.refusal(Resources(device="gb200x4")) is None


def test_a_supervisor_learns_its_host_and_its_address_from_slurm():
    step = script.step("/venv/bin/python", "/s/job.json", "{node}.lab", Resources(device="cpux3", cpus=2))
    assert step[:5] == ["srun", "--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--cpus-per-task=2"]
    assert step[-3] == 'SEAWAY_HOST_ADDRESS="${SLURMD_NODENAME}.lab" exec "$0" -P -m infra.supervise "$1" --host "$SLURM_NODEID"'
    assert step[-2:] == ["/venv/bin/python", "/s/job.json"]


def test_a_spec_url_with_spaces_and_quotes_reaches_the_batch_script_whole():
    assert "'/a b/it'\"'\"'s/job.json'" in script.batch_script("/p", "/a b/it's/job.json", "a" * 16, "{node}")


@pytest.mark.parametrize("argument", ["--requeue", "--job-name=mine", "-d afterok:7", "--array=1-9"])
def test_an_argument_that_would_mix_attempts_up_is_refused(argument: str):
    with pytest.raises(ValueError, match="is set by Seaway"):
        Lane(arguments=(argument,))


def test_an_argument_that_only_begins_like_one_is_passed_on():
    assert Lane(arguments=("--nodelist=n1", "--network=x")).arguments == ("--nodelist=n1", "--network=x")


@pytest.mark.parametrize("folder", ["relative", "/with/%j", "/with\\backslash"])
def test_a_folder_that_slurm_would_expand_is_refused(folder: str):
    with pytest.raises(ValueError, match="absolute path"):
        SlurmConfig(cluster="lab", folder=folder)


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("PREEMPTED", Ending.PREEMPTED),
        ("NODE_FAIL", Ending.NODE_LOST),
        ("BOOT_FAIL", Ending.NODE_LOST),
        ("TIMEOUT", Ending.TIMED_OUT),
        ("DEADLINE", Ending.TIMED_OUT),
        ("OUT_OF_MEMORY", Ending.OUT_OF_MEMORY),
        ("CANCELLED", Ending.CANCELLED),
    ],
)
def test_slurms_word_is_an_ending(state: str, ending: Ending):
    word = word_of(row(state))
    assert word is not None
    assert word.ending is ending


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_an_exit_code_is_left_to_the_hosts_records(state: str):
    assert word_of(row(state)) is None


@pytest.mark.parametrize("state", sorted(OVER))
def test_a_requeued_job_was_preempted_whatever_became_of_its_second_start(state: str):
    word = word_of(row(state, restarts=1))
    assert word is not None
    assert word.ending is Ending.PREEMPTED


def test_a_job_that_never_ran_is_free_unless_somebody_cancelled_it():
    assert unstarted([]).ending is Ending.NEVER_STARTED
    assert unstarted([row("NODE_FAIL")]).ending is Ending.NEVER_STARTED
    assert unstarted([row("CANCELLED")]).ending is Ending.CANCELLED


@pytest.mark.parametrize("reason", ["PartitionNodeLimit", "PartitionTimeLimit", "BadConstraints", "QOSMaxCpuPerJobLimit", "InvalidQOS"])
def test_a_reason_that_time_does_not_cure_is_known(reason: str):
    assert is_unsatisfiable(row("PENDING", reason))


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:n2", "JobHeldUser", "AssocGrpCpuLimit", "Dependency", "Licenses"]
)
def test_a_reason_that_time_may_cure_is_waited_for(reason: str):
    assert not is_unsatisfiable(row("PENDING", reason))


def test_squeues_lines_become_rows_whatever_the_reason_says():
    text = "12|RUNNING|0|job|uid|None|\n13_4|PENDING|0|array|(null)|None|\n14|PENDING|1|job|uid|a|strange|reason|\nnoise\n"
    assert parse(text) == [Row("12", "RUNNING", 0, "job", "uid", "None"), Row("14", "PENDING", 1, "job", "uid", "a|strange|reason")]


def test_sacct_may_say_who_cancelled():
    found = parse_account("17|CANCELLED by 1000\n")
    assert found is not None
    assert found.state == "CANCELLED"
    assert parse_account("") is None


def test_a_job_that_is_still_leaving_its_nodes_is_not_over():
    assert not row("COMPLETING").is_over
    assert row("COMPLETED").is_over


class Looker:
    """Counts how often Slurm is asked."""

    def __init__(self, answer: str = "1|RUNNING|0|a|u|None|\n2|RUNNING|0|b|u|None|\n") -> None:
        self.calls = 0
        self.answer = answer

    def __call__(self) -> str:
        self.calls += 1
        if not self.answer:
            time.sleep(0.2)
            raise EngineUnavailable("no answer")
        return self.answer


def test_a_thousand_polls_of_several_clients_cost_one_look(tmp_path: Path):
    looker = Looker()
    queues = [Queue(tmp_path, looker, age_s=60) for _ in range(4)]
    for number in range(250):
        for queue in queues:
            assert [row.id for row in queue.jobs("ab"[number % 2])] == ["12"[number % 2]]
    assert looker.calls == 1


def test_a_caller_that_needs_a_younger_look_gets_one(tmp_path: Path):
    looker = Looker()
    queue = Queue(tmp_path, looker, age_s=60)
    queue.jobs("a")
    looker.answer = ""
    with pytest.raises(EngineUnavailable):
        queue.jobs("a", not_before_s=time.monotonic())
    looker.answer = "3|RUNNING|0|a|u|None|\n"
    assert [row.id for row in queue.jobs("a")] == ["3"]  # a failure is nothing to remember


def test_those_who_waited_for_a_look_that_failed_do_not_each_wait_for_their_own(tmp_path: Path):
    looker = Looker(answer="")
    queue = Queue(tmp_path, looker, age_s=60)
    failures: list[str] = []

    def ask() -> None:
        try:
            queue.jobs("a")
        except EngineUnavailable as away:
            failures.append(str(away))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failures) == 8
    assert looker.calls <= 2


def test_a_profile_that_names_slurm_gets_its_backend(tmp_path: Path):
    assert connect(CONFIG, tmp_path).identity == f"slurm:lab:user {os.getuid()}:/shared/seaway"
