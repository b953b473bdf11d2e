-- +goose Up
-- Leads from an asset to its newest tasks: a task whose upstream is not part of its run is given
-- the result of the newest run in which that upstream succeeded. The state is not in it, so that
-- the end of a task stays an update in place. Tasks that a fan-out has added have partitions: the
-- many of them lie apart from those of plans.
CREATE INDEX tasks_asset ON servo.tasks (tenant_id, asset, partition, run_id);
