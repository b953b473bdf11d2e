package access

// Scope defines which keys permit a call.
type Scope int

// The scopes.
const (
	// OfTenant requires a key of the tenant that the request names; without a name the call is
	// about the installation, and requires a platform key.
	OfTenant Scope = iota + 1
	// OfPlatform requires a platform key.
	OfPlatform
	// OfWorker requires a worker key with every pool of the request, or a platform key.
	OfWorker
	// OfAnyCaller requires any key except those of workers: the response is limited to the caller's objects.
	OfAnyCaller
)

// Within defines how a key of one workspace is restricted to it.
type Within int

// The restrictions.
const (
	// Whole: the call is about the whole tenant, and not available to a key of one workspace.
	Whole Within = iota
	// Named: the request names the workspace; the default is the workspace default.
	Named
	// Filtered: the request may filter by a workspace; the default is all of them.
	Filtered
	// ByRun: the request names a run, which is in a workspace.
	ByRun
	// ByDeployment: the request names a deployment, which is in a workspace.
	ByDeployment
	// Harmless: the response contains nothing of any workspace.
	Harmless
)

// Method is the permission and scope that a call requires.
type Method struct {
	Permission Permission
	Scope      Scope
	Within     Within
	Workers    bool // worker keys may call it too: workers read the upstreams of their tasks
}

// Audited reports whether calls are in the audit log: all calls that change something, except those
// of workers, which the event log records already.
func (m Method) Audited() bool { return !m.Permission.Reads() && m.Scope != OfWorker }

// Methods returns the requirements of each API method by its full name. Every other method is
// refused.
func Methods() map[string]Method {
	all := map[string]Method{}
	add := func(service string, methods map[string]Method) {
		for name, m := range methods {
			all["/servo.v1."+service+"/"+name] = m
		}
	}
	addTenants(add)
	addPlatform(add)
	return all
}

func tenant(p Permission, within Within) Method {
	return Method{Permission: p, Scope: OfTenant, Within: within}
}

func platform(p Permission) Method { return Method{Permission: p, Scope: OfPlatform} }

// addTenants adds the services of tenants.
func addTenants(add func(service string, methods map[string]Method)) {
	add("TenantService", map[string]Method{
		"CreateTenant": platform(TenantsManage), "GetTenant": tenant(TenantRead, Harmless),
		"ListTenants":     {Permission: TenantRead, Scope: OfAnyCaller, Within: Harmless},
		"CreateWorkspace": tenant(WorkspacesManage, Whole), "ListWorkspaces": tenant(TenantRead, Whole),
		"GetQuotas": tenant(QuotasRead, Whole), "SetQuotas": platform(QuotasManage),
	})
	add("DeploymentService", map[string]Method{
		"Deploy": tenant(AssetsDeploy, Named), "GetDeployment": tenant(AssetsRead, ByDeployment), "ListDeployments": tenant(AssetsRead, Filtered),
		"ActivateDeployment": tenant(DeploymentsActivate, ByDeployment), "CopyDeployment": tenant(AssetsDeploy, Whole), "DiffDeployments": tenant(AssetsRead, Whole),
	})
	add("AssetService", map[string]Method{
		"ListAssets": tenant(AssetsRead, Named), "GetAsset": tenant(AssetsRead, Named), "ListPipelines": tenant(AssetsRead, Named), "ListAssetPartitions": tenant(AssetsRead, Named),
		"PauseAsset": tenant(ConfigsOperate, Named), "ResumeAsset": tenant(ConfigsOperate, Named),
	})
	add("RunService", map[string]Method{
		"TriggerRun": tenant(RunsTrigger, Named), "TriggerRuns": tenant(RunsTrigger, Named), "PlanRun": tenant(RunsRead, Named), "ListRuns": tenant(RunsRead, Filtered), "ListLateRuns": tenant(RunsRead, Filtered), "ListRunningRuns": tenant(RunsRead, Filtered),
		"GetRun": tenant(RunsRead, ByRun), "GetRunGraph": tenant(RunsRead, ByRun), "ExplainRun": tenant(RunsRead, ByRun), "ListRunEvents": tenant(RunsRead, ByRun), "WatchRun": tenant(RunsRead, ByRun),
		"CancelRun": tenant(RunsCancel, ByRun), "RetryRun": tenant(RunsRetry, ByRun),
	})
	upstream := tenant(RunsRead, ByRun)
	upstream.Workers = true
	add("TaskService", map[string]Method{
		"ListTasks": tenant(RunsRead, ByRun), "GetTask": upstream, "ListUpstreamTasks": upstream, "ExplainTask": tenant(RunsRead, ByRun),
		"ListTaskLogs": tenant(RunsRead, ByRun), "ForceCancelTask": tenant(RunsCancel, ByRun),
	})
	add("ConfigService", map[string]Method{
		"CreateConfig": tenant(ConfigsWrite, Named), "ApplyConfigs": tenant(ConfigsWrite, Named), "UpdateConfig": tenant(ConfigsWrite, Named), "DeleteConfig": tenant(ConfigsWrite, Named),
		"ListConfigs": tenant(ConfigsRead, Filtered), "GetConfig": tenant(ConfigsRead, Named), "PreviewConfig": tenant(ConfigsRead, Named), "PreviewSchedule": tenant(ConfigsRead, Named),
		"ListConfigAudit": tenant(ConfigsRead, Named), "ListSlots": tenant(ConfigsRead, Named), "GetOutcomes": tenant(ConfigsRead, Named), "FindHoles": tenant(ConfigsRead, Named), "ExplainConfig": tenant(ConfigsRead, Named),
		"PauseConfig": tenant(ConfigsOperate, Named), "ResumeConfig": tenant(ConfigsOperate, Named), "RescheduleConfig": tenant(ConfigsOperate, Named),
		"TriggerConfig": tenant(RunsTrigger, Named),
	})
	add("BackfillService", map[string]Method{
		"CreateBackfill": tenant(BackfillsCreate, Named), "PreviewBackfill": tenant(BackfillsRead, Named), "ListBackfills": tenant(BackfillsRead, Filtered),
		"GetBackfill": tenant(BackfillsRead, Named), "ListBackfillRuns": tenant(BackfillsRead, Named), "PauseBackfill": tenant(BackfillsManage, Named),
		"ResumeBackfill": tenant(BackfillsManage, Named), "CancelBackfill": tenant(BackfillsManage, Named), "RetryBackfill": tenant(BackfillsManage, Named),
	})
	add("MaterializationService", map[string]Method{
		"ListMaterializations": tenant(AssetsRead, Whole), "GetMaterialization": tenant(AssetsRead, Whole),
	})
	add("TemplateService", map[string]Method{
		"ListTemplates": tenant(ConfigsRead, Whole), "SetTemplate": tenant(ConfigsWrite, Whole), "DeleteTemplate": tenant(ConfigsWrite, Whole),
	})
	add("EventService", map[string]Method{"SendEvent": tenant(EventsSend, Named), "GetEvent": tenant(EventsRead, Whole), "ListEvents": tenant(AuditRead, Whole)})
	add("SearchService", map[string]Method{"Search": tenant(RunsRead, Filtered)})
	add("SimulationService", map[string]Method{"Simulate": tenant(ConfigsRead, Whole)})
	add("LockService", map[string]Method{"ListLocks": tenant(LocksRead, Whole), "ReleaseLock": tenant(LocksRelease, Whole)})
	add("SubscriptionService", map[string]Method{
		"ListSubscriptions": tenant(SubscriptionsRead, Whole), "GetSubscription": tenant(SubscriptionsRead, Whole),
		"CreateSubscription": tenant(SubscriptionsManage, Whole), "PauseSubscription": tenant(SubscriptionsManage, Whole),
		"ResumeSubscription": tenant(SubscriptionsManage, Whole), "ReplaySubscription": tenant(SubscriptionsManage, Whole),
		"DeleteSubscription": tenant(SubscriptionsManage, Whole),
	})
	add("AlertService", map[string]Method{
		"ListAlerts": tenant(AlertsRead, Whole), "GetAlert": tenant(AlertsRead, Whole), "ListAlertChannels": tenant(SubscriptionsRead, Whole),
		"CreateAlertChannel": tenant(SubscriptionsManage, Whole), "TestAlertChannel": tenant(SubscriptionsManage, Whole), "DeleteAlertChannel": tenant(SubscriptionsManage, Whole),
	})
	add("KeyService", map[string]Method{
		"CreateKey": tenant(KeysManage, Whole), "ListKeys": tenant(KeysRead, Whole), "RotateKey": tenant(KeysManage, Whole), "RevokeKey": tenant(KeysManage, Whole),
		"WhoAmI": {Permission: TenantRead, Scope: OfAnyCaller, Within: Harmless, Workers: true},
	})
	add("AuditService", map[string]Method{"ListAudit": tenant(AuditRead, Whole)})
	add("MetricsService", map[string]Method{"GetTenantMetrics": tenant(RunsRead, Whole)})
}

// addPlatform adds the services of the installation and of workers.
func addPlatform(add func(service string, methods map[string]Method)) {
	worker := Method{Permission: TasksWork, Scope: OfWorker}
	add("SchedulerService", map[string]Method{"Tick": platform(SchedulerTick)})
	add("StatusService", map[string]Method{"GetStatus": platform(PlatformRead), "GetActivity": tenant(RunsRead, Whole)})
	add("FairnessService", map[string]Method{"ListShares": platform(PlatformRead)})
	add("PoolService", map[string]Method{
		"CreatePool": platform(PoolsManage), "UpdatePool": platform(PoolsManage), "DeletePool": platform(PoolsManage),
		"GetPool": platform(PlatformRead), "ListPools": platform(PlatformRead),
	})
	add("ReleaseService", map[string]Method{
		"CreateRelease": platform(ReleasesManage), "DeleteRelease": platform(ReleasesManage),
		"GetRelease": platform(PlatformRead), "ListReleases": platform(PlatformRead), "CheckRelease": platform(PlatformRead), "DiffReleases": platform(PlatformRead),
	})
	add("ReleaseChannelService", map[string]Method{
		"CreateReleaseChannel": platform(ReleasesManage), "UpdateReleaseChannel": platform(ReleasesManage), "DeleteReleaseChannel": platform(ReleasesManage),
		"ListReleaseChannels": platform(PlatformRead), "GetReleaseChannel": platform(PlatformRead), "RollChannel": platform(ReleasesManage),
		"PauseRollout": platform(ReleasesManage), "ResumeRollout": platform(ReleasesManage), "AdvanceRollout": platform(ReleasesManage), "RollBackChannel": platform(ReleasesManage),
		"FollowChannelByLabel": platform(ReleasesManage), "FollowChannel": platform(ReleasesManage), "SetTenantLabels": platform(TenantsManage),
	})
	add("SigningKeyService", map[string]Method{
		"CreateSigningKey": platform(SigningKeys), "RotateSigningKeys": platform(SigningKeys), "RevokeSigningKey": platform(SigningKeys),
		"ListSigningKeys": platform(PlatformRead),
	})
	add("AdminService", map[string]Method{
		"VerifyProjections": platform(Projections), "RepairRun": platform(Projections), "PauseDispatch": platform(DispatchPause),
		"ResumeDispatch": platform(DispatchPause), "GetDispatch": platform(PlatformRead),
	})
	add("WorkerService", map[string]Method{
		"Claim": worker, "Report": worker, "Heartbeat": worker, "StartTask": worker, "AdvanceCursor": worker, "YieldTask": worker, "FanOutTask": worker,
		"CompleteTask": worker, "FailTask": worker, "ListWorkers": platform(PlatformRead),
	})
}
