package access

import (
	"slices"
	"strings"
)

// Permission is the right to do one kind of action.
type Permission string

// The permissions. Those that end with _READ change nothing.
const (
	AssetsRead     Permission = "ASSETS_READ" // deployments and pipelines, too
	RunsRead       Permission = "RUNS_READ"
	ConfigsRead    Permission = "CONFIGS_READ" // slots and templates, too
	CostsRead      Permission = "COSTS_READ"
	TenantRead     Permission = "TENANT_READ" // the tenant itself and its workspaces
	LocksRead      Permission = "LOCKS_READ"
	AlertsRead     Permission = "ALERTS_READ"
	EventsRead     Permission = "EVENTS_READ"
	BackfillsRead  Permission = "BACKFILLS_READ"
	QuarantineRead Permission = "QUARANTINE_READ"

	RunsTrigger      Permission = "RUNS_TRIGGER"
	RunsCancel       Permission = "RUNS_CANCEL"
	RunsRetry        Permission = "RUNS_RETRY"
	ConfigsOperate   Permission = "CONFIGS_OPERATE" // pause, resume, reschedule; assets, too
	QuarantineReview Permission = "QUARANTINE_REVIEW"
	LocksRelease     Permission = "LOCKS_RELEASE"
	AlertsSilence    Permission = "ALERTS_SILENCE"

	AssetsDeploy Permission = "ASSETS_DEPLOY"
	AssetsDelete Permission = "ASSETS_DELETE"

	DeploymentsActivate Permission = "DEPLOYMENTS_ACTIVATE"

	ConfigsWrite    Permission = "CONFIGS_WRITE"
	BackfillsCreate Permission = "BACKFILLS_CREATE"
	BackfillsManage Permission = "BACKFILLS_MANAGE"
	EventsSend      Permission = "EVENTS_SEND"

	KeysManage          Permission = "KEYS_MANAGE"
	KeysRead            Permission = "KEYS_READ"
	QuotasRead          Permission = "QUOTAS_READ"
	SubscriptionsManage Permission = "SUBSCRIPTIONS_MANAGE" // channels of alerts, too
	SubscriptionsRead   Permission = "SUBSCRIPTIONS_READ"   // the URLs of webhooks often contain a secret
	AuditRead           Permission = "AUDIT_READ"
	WorkspacesManage    Permission = "WORKSPACES_MANAGE"

	TenantsManage Permission = "TENANTS_MANAGE"
	QuotasManage  Permission = "QUOTAS_MANAGE"
	PoolsManage   Permission = "POOLS_MANAGE"

	ReleasesManage Permission = "RELEASES_MANAGE" // releases, channels and who follows them

	SchedulerTick Permission = "SCHEDULER_TICK"
	DispatchPause Permission = "DISPATCH_PAUSE"
	Projections   Permission = "PROJECTIONS"
	SigningKeys   Permission = "SIGNING_KEYS"
	Admin         Permission = "ADMIN"
	PlatformRead  Permission = "PLATFORM_READ" // pools, workers, shares, the state of the installation

	TasksWork Permission = "TASKS_WORK" // claim, report, heartbeat
)

// Reads reports whether the permission changes nothing.
func (p Permission) Reads() bool { return strings.HasSuffix(string(p), "_READ") }

// Role is a set of permissions.
type Role string

// The roles. The first four are roles of a tenant, each with the permissions of the one before. A
// platform key may do everything everywhere. A worker key may only claim and report tasks. A tick key
// may only make servers fire due slots.
const (
	Viewer      Role = "viewer"
	Operator    Role = "operator"
	Developer   Role = "developer"
	TenantAdmin Role = "admin"
	Platform    Role = "platform"
	Worker      Role = "worker"
	Tick        Role = "tick"
)

// Roles returns all roles, the weakest first.
func Roles() []Role { return []Role{Worker, Tick, Viewer, Operator, Developer, TenantAdmin, Platform} }

// ladder returns the permissions that each role adds to the one before.
func ladder() []rung {
	return []rung{
		{Viewer, []Permission{
			AssetsRead, RunsRead, ConfigsRead, CostsRead, TenantRead, QuotasRead, LocksRead, AlertsRead, EventsRead, BackfillsRead, QuarantineRead,
		}},
		{Operator, []Permission{RunsTrigger, RunsCancel, RunsRetry, ConfigsOperate, QuarantineReview, LocksRelease, AlertsSilence}},
		{Developer, []Permission{AssetsDeploy, AssetsDelete, DeploymentsActivate, ConfigsWrite, BackfillsCreate, BackfillsManage, EventsSend}},
		{TenantAdmin, []Permission{KeysManage, KeysRead, SubscriptionsManage, SubscriptionsRead, AuditRead, WorkspacesManage}},
		{Platform, []Permission{
			TenantsManage, ReleasesManage, QuotasManage, PoolsManage, SchedulerTick, DispatchPause, Projections, SigningKeys, Admin, PlatformRead, TasksWork,
		}},
	}
}

type rung struct {
	role Role
	adds []Permission
}

// Permissions returns the permissions of a role.
func (r Role) Permissions() (all []Permission) {
	switch r { //nolint:exhaustive // the others are on the ladder
	case Worker:
		return []Permission{TasksWork}
	case Tick:
		return []Permission{SchedulerTick}
	}
	for _, step := range ladder() {
		all = append(all, step.adds...)
		if step.role == r {
			return all
		}
	}
	return nil
}

// Has reports whether a role has a permission.
func (r Role) Has(p Permission) bool { return slices.Contains(r.Permissions(), p) }

// Known reports whether the role exists.
func (r Role) Known() bool { return slices.Contains(Roles(), r) }

// Least returns the weakest role with a permission.
func Least(p Permission) Role {
	switch p { //nolint:exhaustive // the others are on the ladder
	case TasksWork:
		return Worker
	case SchedulerTick:
		return Tick
	}
	for _, step := range ladder() {
		if slices.Contains(step.adds, p) {
			return step.role
		}
	}
	return Platform
}
