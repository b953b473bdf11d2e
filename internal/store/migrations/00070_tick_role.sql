-- +goose Up
-- Keys of an outside clock, which may ask servers to fire what is due and nothing else.
ALTER TABLE servo.api_keys DROP CONSTRAINT api_keys_role_check;
ALTER TABLE servo.api_keys ADD CONSTRAINT api_keys_role_check CHECK (role IN ('viewer', 'operator', 'developer', 'admin', 'platform', 'worker', 'tick'));
ALTER TABLE servo.api_keys ADD CONSTRAINT tick_keys_have_no_tenant CHECK ((role = 'tick') <= (tenant_id = '00000000-0000-0000-0000-000000000000'));
