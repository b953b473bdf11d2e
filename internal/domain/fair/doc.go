// Package fair shares a pool among tenants: weighted deficit round-robin over worker-seconds, and the
// order of tasks within a tenant. It is pure: it reads no clock, no table and no quota of its own.
package fair
