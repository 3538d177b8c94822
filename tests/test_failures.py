"""Each line of the failure table of the operations page has tests that prove it."""

from __future__ import annotations

import ast

import pytest

from .tree import ROOT

PAGE = ROOT / "docs" / "operations.md"

SHOWN: dict[str, tuple[str, ...]] = {
    "a worker dies": (
        "agents/stages/aggregate/test_held_release.py::"
        "test_a_worker_killed_at_any_point_publishes_the_same_bytes_once",
        "integration/test_mechanisms.py::test_spatial_and_value_pipelines_survive_a_killed_worker",
    ),
    "a worker hangs and comes back": (
        "integration/test_outage.py::test_a_worker_that_slept_through_a_trim_goes_on",
        "agents/worker/shards/test_transaction.py::test_a_zombie_is_fenced_and_can_publish_nothing",
    ),
    "a task of a worker makes no progress": (
        "agents/worker/health/test_state.py::test_a_task_that_hangs_is_not_live_and_is_told_once",
        "agents/worker/health/test_systemd.py::"
        "test_ready_once_alive_while_live_and_stopping_at_the_end",
        "agents/worker/health/test_topics.py::test_input_that_grows_and_is_not_fetched_is_a_stall",
        "agents/kafka/test_transport.py::test_a_flow_that_nobody_resumes_is_no_progress",
        "agents/worker/test_log_follower.py::"
        "test_the_ends_of_what_shards_read_are_asked_for_and_forgotten_with_them",
    ),
    "a log is not read to its end": (
        "agents/kafka/test_clients.py::"
        "test_a_log_of_which_nothing_comes_is_not_waited_for_without_end",
    ),
    "the wall clock of a worker is set back": (
        "agents/worker/shards/test_shard.py::test_a_wall_clock_that_is_set_back_delays_no_release",
    ),
    "SIGTERM": (
        "integration/test_outage.py::test_a_signal_while_a_worker_starts_ends_it_in_order",
        "cli/test_group.py::test_a_signal_while_a_command_is_loaded",
        "agents/worker/test_startup.py::"
        "test_a_signal_while_loops_are_compiled_ends_the_process_at_once",
        "agents/worker/test_startup.py::test_a_process_that_cannot_stop_ends_with_4",
    ),
    "local tables are lost, stale or of another version": (
        "agents/worker/shards/test_shard.py::"
        "test_steps_are_published_stored_and_taken_up_by_the_next_owner",
        "agents/worker/tables/test_evidence.py::test_local_state_that_cannot_be_trusted_is_thrown_away",
        "agents/worker/tables/test_evidence.py::"
        "test_a_table_of_an_earlier_version_is_evidence_and_is_restored_from_nothing",
    ),
    "a local table is damaged": (
        "integration/test_gone.py::test_damaged_tables_are_set_aside_and_restored",
        "agents/worker/shards/test_damage.py::test_a_table_that_is_damaged_while_it_serves_is_restored",
        "agents/worker/shards/test_damage.py::"
        "test_a_disk_that_damages_one_table_after_the_other_is_given_up",
    ),
    "the disk of `data_dir` is full": (
        "integration/test_gone.py::test_a_full_disk_is_named",
        "agents/worker/test_upkeep.py::test_a_folder_that_was_deleted_ends_its_worker_with_advice",
    ),
    "an internal or raw topic": (
        "integration/test_gone.py::test_a_topic_that_is_deleted_stops_the_worker_within_seconds",
        "integration/test_gone.py::test_partitions_that_are_added_stop_it_with_what_to_do",
    ),
    "a worker runs on, or wakes up, after added raw partitions": (
        "integration/test_grown.py::test_added_partitions_count_from_the_next_trigger_on",
        "integration/test_grown.py::"
        "test_an_earlier_version_that_runs_at_the_growth_ends_and_is_refused",
        "agents/stages/bound/test_stage.py::"
        "test_a_shard_that_knows_fewer_partitions_stops_before_it_closes_without_them",
        "agents/clock/test_known.py::"
        "test_an_owner_that_counts_fewer_partitions_than_the_ledger_writes_nothing",
    ),
    "the broker is unreachable": (
        "integration/test_outage.py::"
        "test_beats_and_triggers_come_again_after_an_outage_and_a_long_one_is_given_up",
    ),
    "the broker comes back, or a worker starts": (
        "integration/test_outage.py::test_what_producers_held_during_an_outage_is_in_time",
        "agents/clock/test_wall_time.py::"
        "test_a_clock_that_nobody_has_kept_waits_and_one_that_has_moved_does_not",
    ),
    "a worker starts while the broker is unreachable": (
        "integration/test_leaderless.py::"
        "test_a_start_without_a_leader_is_waited_out_and_a_long_one_is_given_up",
        "agents/worker/test_startup.py::"
        "test_a_start_waits_as_long_as_any_outage_says_so_once_a_minute_and_ends",
        "agents/worker/health/test_joining.py::test_a_worker_that_is_not_taken_in_says_so_and_ends",
        "agents/kafka/test_clients.py::"
        "test_a_producer_whose_coordinator_has_no_leader_is_not_waited_for_without_end",
    ),
    "a coordinator loses its leader": (
        "agents/worker/shards/test_transaction.py::test_a_commit_that_nobody_answers_is_given_up_and_made_again",
        "agents/clock/test_owner.py::"
        "test_a_commit_that_nobody_answers_is_given_up_like_one_that_failed",
        "agents/kafka/test_clients.py::"
        "test_a_producer_whose_coordinator_has_no_leader_is_not_waited_for_without_end",
    ),
    "two workers run under one name": (
        "agents/worker/health/test_namesake.py::"
        "test_of_two_workers_with_one_name_the_second_ends_and_the_first_releases",
        "agents/worker/health/test_namesake.py::"
        "test_one_on_the_same_machine_may_be_the_first_after_a_restart_and_is_given_time",
    ),
    "a task of a worker ends": (
        "agents/worker/test_tasks.py::test_the_end_of_the_clock_stops_the_worker",
        "agents/worker/test_tasks.py::test_the_end_of_a_shard_stops_the_worker",
        "agents/worker/test_tasks.py::test_the_end_of_the_log_follower_stops_the_worker",
    ),
    "a transaction fails": (
        "agents/worker/shards/test_transaction.py::test_rows_of_an_aborted_transaction_are_not_restored",
        "agents/worker/shards/test_transaction.py::"
        "test_a_batch_that_the_broker_refuses_for_good_is_never_left_out_of_a_commit",
        "agents/clock/test_owner.py::test_a_trigger_whose_charge_was_refused_is_not_committed",
    ),
    "a request of a transaction is not answered": (
        "integration/test_torn.py::test_every_transaction_is_there_in_whole_or_not_at_all",
        "integration/test_torn.py::test_a_deployment_releases_what_the_judge_computes",
    ),
    "a bad record": (
        "integration/test_integration.py::"
        "test_a_bad_record_stops_the_worker_where_the_input_says_so",
        "integration/test_fuzz.py::test_bad_records_and_beats_between_good_ones_change_no_count",
    ),
    "many records are lost": (
        "agents/worker/health/test_losses.py::test_each_cause_is_told_in_words_once_in_a_while",
        "integration/test_alarms.py::test_a_producer_with_another_partitioner_raises_an_alarm",
    ),
    "a compressed batch inflates": (
        "integration/test_bombs.py::test_a_worker_lives_through_bombs_and_replay_agrees",
    ),
    "records arrive faster than they are used": (
        "agents/worker/shards/test_shard_input.py::test_a_full_shard_pauses_its_partition",
        "agents/kafka/test_backlog.py::"
        "test_bytes_and_records_fill_it_and_what_is_released_makes_room",
    ),
    "the budget's limit is reached": (
        "integration/test_refused.py::"
        "test_a_window_that_cannot_be_paid_for_is_refused_before_its_records_come",
        "integration/test_integration.py::"
        "test_an_exhausted_budget_is_refused_on_the_ledger_and_nothing_is_released",
    ),
    "raw records vanish": (
        "integration/test_lost.py::"
        "test_lost_records_end_a_worker_before_it_owns_the_clock_until_they_are_accepted",
        "agents/kafka/test_transport.py::"
        "test_a_position_that_is_gone_stops_the_worker_and_says_what_to_do",
    ),
    "workers start after a long time": (
        "agents/worker/test_admission.py::test_what_a_start_would_charge_is_said_before_it_does",
    ),
    "a topic is recreated": (
        "agents/clock/test_genesis.py::test_a_recreated_topic_is_refused",
        "agents/clock/test_genesis.py::test_added_partitions_are_refused",
    ),
    "the ledger is missing": (
        "agents/clock/test_genesis.py::"
        "test_a_ledger_that_is_gone_is_missed_although_there_is_no_state",
        "agents/clock/test_genesis.py::"
        "test_state_without_a_ledger_is_refused_and_nothing_advises_to_delete",
    ),
    "a changelog, the clock log or a *selected* topic was rewound": (
        "agents/worker/tables/test_evidence.py::"
        "test_a_table_of_another_history_is_evidence_however_far_its_changelog_has_grown",
        "agents/worker/test_log_follower.py::"
        "test_on_the_broker_a_log_that_was_rewound_and_has_grown_since_is_known_by_its_last_record",
    ),
    "a units, cells or clock topic, or a changelog, lost": (
        "agents/worker/test_opening.py::"
        "test_a_clock_log_that_has_another_entry_before_a_shards_place_is_refused",
        "agents/stages/test_numbers.py::test_both_stages_that_read_frames_stop",
        "agents/worker/test_opening.py::test_a_release_that_the_changelog_lacks_is_found",
        "schedules/test_schedules.py::test_a_recipe_objects_to_the_mistake_alone",
    ),
    "compaction has deleted what would tell": (
        "agents/worker/tables/test_evidence.py::"
        "test_a_table_of_which_its_changelog_says_nothing_any_more_is_restored_from_nothing",
    ),
    "the ledger is older": (
        "integration/test_disaster.py::"
        "test_an_older_copy_of_the_ledger_is_refused_and_the_newest_one_is_not",
    ),
    "a log is behind": (
        "integration/test_disaster.py::"
        "test_a_cluster_that_was_restored_from_its_disk_is_refused_with_evidence",
        "integration/test_disaster.py::"
        "test_a_worker_that_waits_while_its_cluster_is_restored_stops",
        "agents/clock/test_witness.py::"
        "test_an_aborted_trigger_raises_no_alarm_and_a_log_without_it_does",
    ),
    "the noise key differs": (
        "agents/clock/test_genesis_keys.py::test_another_noise_key_is_refused_from_the_beginning",
        "agents/worker/test_log_follower.py::"
        "test_a_worker_with_another_key_stops_before_it_has_used_a_record",
    ),
    "another deployment writes": (
        "agents/kafka/access/test_owners.py::test_two_deployments_cannot_share_a_release_topic",
        "agents/kafka/access/test_owners.py::test_nor_topics_of_what_is_set_aside",
    ),
    "a configuration names a topic": (
        "topics/config/test_check.py::"
        "test_no_pipeline_releases_to_and_no_input_is_what_others_live_by",
        "agents/kafka/access/test_owners.py::"
        "test_a_topic_that_holds_what_others_wrote_is_refused_before_anything_is_made",
    ),
    "`hush.owners.v1` is deleted": (
        "agents/worker/health/test_topics.py::"
        "test_owners_that_are_deleted_or_forget_are_told_and_others_in_their_place_stop",
        "agents/kafka/access/test_owners.py::test_a_topic_of_our_own_releases_is_claimed_again",
    ),
    "a log would expire": ("agents/worker/test_admission.py::test_check_and_worker_refuse_alike",),
    "the clock of the worker that begins": (
        "agents/clock/test_owner.py::test_a_first_window_is_not_chosen_by_a_clock_that_is_behind",
    ),
    "a broker that was cut off": (
        "agents/worker/shards/test_transaction.py::"
        "test_a_shard_that_was_answered_by_a_leader_of_before_publishes_nothing",
        "agents/clock/test_owner.py::test_a_log_that_was_not_read_to_its_end_gets_no_trigger",
    ),
    "the clock owner's time": (
        "agents/clock/test_owner.py::"
        "test_a_clock_that_is_ahead_of_the_broker_charges_and_triggers_nothing",
    ),
}


def _lines() -> list[str]:
    """The failures in the table, line by line."""
    _, _, rest = PAGE.read_text("utf-8").partition("\n## Failures\n")
    table = rest.partition("\n## ")[0]
    cells = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line[:2] == "| "]
    return cells[1:]


def test_the_table_is_found() -> None:
    assert len(_lines()) >= 25


@pytest.mark.parametrize("line", _lines())
def test_each_line_is_shown(line: str) -> None:
    (begin,) = [begin for begin in SHOWN if line.startswith(begin)]
    for node in SHOWN[begin]:
        path, _, name = node.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text("utf-8"))
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}, node


def test_nothing_is_shown_that_the_table_does_not_say() -> None:
    assert [b for b in SHOWN if not any(line.startswith(b) for line in _lines())] == []
