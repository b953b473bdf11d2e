-- +goose Up
-- The tasks of earlier runs whose results a retry's task is given, since the retry does not do
-- them again: run, task, run, task and so on. It is written when the retry is made, so whoever
-- claims the task finds them by their keys. Almost all tasks have none.
ALTER TABLE servo.tasks ADD COLUMN inherited uuid[];
