-- +goose Up
-- Which addresses may be called is for the platform to say, once for all URLs
-- (--allow-private-networks), and no longer for each channel, subscription and pool.
ALTER TABLE servo.alert_channels DROP COLUMN allow_private;
ALTER TABLE servo.subscriptions DROP COLUMN allow_private;
ALTER TABLE servo.pools DROP COLUMN allow_private;
