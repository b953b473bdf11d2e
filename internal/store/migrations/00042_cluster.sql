-- +goose Up

-- +goose StatementBegin
-- Ends a transaction that a pooler has sent to another cluster, or another branch of its history,
-- than the server has prepared for: tokens and feed positions would be given out again.
CREATE FUNCTION servo.require_cluster(wanted text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF wanted <> (SELECT c.system_identifier FROM pg_control_system() AS c)::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) THEN
        RAISE EXCEPTION 'the cluster is no longer %', wanted USING ERRCODE = 'SV001';
    END IF;
END
$$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION servo.require_cluster(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION servo.require_cluster(text) TO servo_engine;
