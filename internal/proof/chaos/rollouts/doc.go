// Package rollouts shows that a rollout survives its server: it is killed at every step, before and after the
// commit of the decision. The channel is always in a legal state, each run uses one release, and each end of a
// run is counted once. The package has tests only; SERVO_SOAK kills more often, SERVO_CHAOS_SEED replays an order.
package rollouts
