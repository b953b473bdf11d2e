package web

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

const (
	overdueAfter = time.Minute // after the due time of a slot
	nextSlots    = 8
	lastRuns     = 20
	manySlots    = 2000 // in a calendar: every refresh counts them
)

// oneConfig is one config.
func (s *Web) oneConfig(v *visit) (view.Page, error) {
	found, err := s.configOf(v)
	if err != nil {
		return view.Page{}, err
	}
	m := view.ConfigModel{
		Config: found, Zone: view.ZoneOf(found.GetSpec().GetTimezone()), Tab: v.query("tab"), Paging: v.paging(""),
		MayOperate: v.may(access.ConfigsOperate), MayWrite: v.may(access.ConfigsWrite), MayTrigger: v.may(access.RunsTrigger),
	}
	m.Overdue = found.GetState() == servov1.Config_ACTIVE && found.GetDueAt() != nil && v.now.Sub(found.GetDueAt().AsTime()) > overdueAfter
	if m.Overdue || found.GetState() != servov1.Config_ACTIVE {
		// The page works without the explanation.
		if why, err := s.api.configs.ExplainConfig(v.ctx, &servov1.ExplainConfigRequest{Tenant: found.GetTenant(), Config: found.GetId()}); err == nil {
			m.Why = why
		}
	}
	for _, fill := range []func(*visit, *view.ConfigModel) error{s.configFailures, s.configNext, s.configCalendar, s.configDay, s.configTab} {
		if err := fill(v, &m); err != nil {
			return view.Page{}, err
		}
	}
	return view.Page{Title: found.GetName(), Section: "configs", Live: m.First && v.query("older") == "", Rarely: m.Calendar.Slots() > manySlots, Body: view.Config(m)}, nil
}

// configOf is the config of a page or an action. A deleted config has no page: the API would refuse
// all its actions.
func (s *Web) configOf(v *visit) (*servov1.Config, error) {
	found, err := s.api.configs.GetConfig(v.ctx, &servov1.GetConfigRequest{Tenant: v.scope.Tenant, Config: v.PathValue("config"), Workspace: v.scope.Workspace})
	if err == nil && found.GetDeletedAt() != nil {
		return nil, fault.New(fault.NotFound, "config "+found.GetName()+" was deleted", fault.Field("config"), fault.Remedy("restore it: servo configs restore "+found.GetId()))
	}
	return found, err
}

// configFailures reads the failed tasks of the last run.
func (s *Web) configFailures(v *visit, m *view.ConfigModel) error {
	last := m.Config.GetLastRun()
	if m.Config.GetConsecutiveFailures() == 0 || last.GetState() != servov1.Run_FAILED {
		return nil
	}
	const shown = 3
	list, err := s.api.tasks.ListTasks(v.ctx, &servov1.ListTasksRequest{
		Tenant: m.Config.GetTenant(), Run: last.GetId(), State: []servov1.Task_State{servov1.Task_FAILED}, PageSize: shown,
	})
	if hasCode(err, fault.NotFound) { // the run is older than the retention
		return nil
	}
	m.Failed = list.GetTasks()
	return err
}

func (s *Web) configNext(v *visit, m *view.ConfigModel) error {
	next, err := s.api.configs.PreviewConfig(v.ctx, &servov1.PreviewConfigRequest{Tenant: m.Config.GetTenant(), Config: m.Config.GetId(), Count: nextSlots})
	m.Next = next.GetSlots()
	return err
}

// configCalendar reads the outcomes of the slots of the last weeks.
func (s *Web) configCalendar(v *visit, m *view.ConfigModel) error {
	outcomes, err := s.api.configs.GetOutcomes(v.ctx, &servov1.GetOutcomesRequest{
		Tenant: m.Config.GetTenant(), Config: m.Config.GetId(), Timezone: m.Zone.String(),
		From: view.CalendarFrom(v.now, m.Zone).Format(time.DateOnly), To: view.CalendarTo(v.now, m.Zone).Format(time.DateOnly),
	})
	m.Calendar = view.CalendarOf(outcomes, v.now, m.Zone)
	return err
}

// configDay reads the slots of the selected day.
func (s *Web) configDay(v *visit, m *view.ConfigModel) error {
	day, err := time.ParseInLocation(time.DateOnly, v.query("day"), m.Zone)
	if err != nil {
		return nil // no day, or an invalid one
	}
	m.Day = day.Format(time.DateOnly)
	end := time.Date(day.Year(), day.Month(), day.Day()+1, 0, 0, 0, 0, m.Zone)
	list, err := s.api.configs.ListSlots(v.ctx, &servov1.ListSlotsRequest{
		Tenant: m.Config.GetTenant(), Config: m.Config.GetId(), From: timestamppb.New(day), To: timestamppb.New(end), PageSize: rowsOfList, PageToken: v.token(),
	})
	m.Slots, m.Paging = list.GetSlots(), v.paging(list.GetNextPageToken())
	return err
}

// configTab reads the data of the selected tab.
func (s *Web) configTab(v *visit, m *view.ConfigModel) error {
	switch m.Tab {
	case "settings":
		return nil
	case "audit":
		list, err := s.api.configs.ListConfigAudit(v.ctx, &servov1.ListConfigAuditRequest{
			Tenant: m.Config.GetTenant(), Config: m.Config.GetId(), PageSize: rowsOfList, PageToken: v.query("older"),
		})
		for _, e := range list.GetEntries() {
			m.Audit = append(m.Audit, view.ChangeOf(e))
		}
		m.AuditPaging = v.pagingBy("older", list.GetNextPageToken())
		return err
	}
	m.Tab = "runs"
	list, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: m.Config.GetTenant(), Config: m.Config.GetId(), PageSize: lastRuns})
	m.Runs = list.GetRuns()
	return err
}

func (s *Web) pauseConfig(v *visit) (done, error) {
	c, err := s.api.configs.PauseConfig(v.ctx, &servov1.PauseConfigRequest{Tenant: v.scope.Tenant, Config: v.PathValue("config"), Workspace: v.scope.Workspace, Reason: v.field("reason")})
	return done{To: configPath(c), Notice: "Config paused."}, err
}

func (s *Web) resumeConfig(v *visit) (done, error) {
	c, err := s.api.configs.ResumeConfig(v.ctx, &servov1.ResumeConfigRequest{Tenant: v.scope.Tenant, Config: v.PathValue("config"), Workspace: v.scope.Workspace, Reason: v.field("reason")})
	return done{To: configPath(c), Notice: "Config resumed."}, err
}

func (s *Web) triggerConfig(v *visit) (done, error) {
	made, err := s.api.configs.TriggerConfig(v.ctx, &servov1.TriggerConfigRequest{
		Tenant: v.scope.Tenant, Config: v.PathValue("config"), Workspace: v.scope.Workspace, WaitForQuota: true,
	})
	notice := "Run created. You are viewing it."
	if made.GetAlreadyRunning() {
		notice = "No run created: runs must not overlap. You are viewing the run in progress."
	}
	return done{To: view.RunPath(v.scope.Tenant, made.GetRun().GetId()), Notice: notice}, err
}

// rescheduleConfig moves the next slot to a time in the config's zone.
func (s *Web) rescheduleConfig(v *visit) (done, error) {
	found, err := s.configOf(v)
	if err != nil {
		return done{}, err
	}
	slot, err := localTime(v.field("slot"), view.ZoneOf(found.GetSpec().GetTimezone()))
	if err != nil {
		return done{}, err
	}
	c, err := s.api.configs.RescheduleConfig(v.ctx, &servov1.RescheduleConfigRequest{
		Tenant: found.GetTenant(), Config: found.GetId(), Slot: timestamppb.New(slot), Version: v.version(), Reason: v.field("reason"),
	})
	return done{To: configPath(c), Notice: "Next slot rescheduled."}, err
}

// localTime parses a field for date and time.
func localTime(text string, zone *time.Location) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(layout, text, zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fault.New(fault.InvalidArgument, "is not a date and time", fault.Field("slot"), fault.Remedy("select a day and a time of day"))
}

func (s *Web) deleteConfig(v *visit) (done, error) {
	_, err := s.api.configs.DeleteConfig(v.ctx, &servov1.DeleteConfigRequest{
		Tenant: v.scope.Tenant, Config: v.PathValue("config"), Workspace: v.scope.Workspace, Version: v.version(), Reason: v.field("reason"), Force: v.field("force") != "",
	})
	return done{To: view.Scope{Tenant: v.scope.Tenant}.At("/ui/configs"), Notice: "Config " + v.PathValue("config") + " deleted."}, err
}

func configPath(c *servov1.Config) string {
	return view.ConfigPath(c.GetTenant(), c.GetWorkspace(), c.GetName())
}
