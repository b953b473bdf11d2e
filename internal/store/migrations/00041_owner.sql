-- +goose Up

-- Servers look which migrations are applied. Their login role inherits nothing, so they do it as
-- the engine.
GRANT SELECT ON servo.migration_checksums TO servo_engine;
