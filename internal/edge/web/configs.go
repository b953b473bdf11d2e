package web

import (
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// configRoutes are the pages of configs.
func (s *Web) configRoutes() {
	s.show("/configs", s.configs)
	s.show("/configs/new", s.newConfig)
	s.act("/configs/new", s.saveConfig)
	s.show("/tenants/{tenant}/configs/{config}/edit", s.editConfig)
	s.act("/tenants/{tenant}/configs/{config}/edit", s.saveConfig)
	s.preview("/tenants/{tenant}/preview-schedule", s.previewConfig)
	s.show("/tenants/{tenant}/configs/{config}", s.oneConfig)
	s.act("/tenants/{tenant}/configs/{config}/pause", s.pauseConfig)
	s.act("/tenants/{tenant}/configs/{config}/resume", s.resumeConfig)
	s.act("/tenants/{tenant}/configs/{config}/trigger", s.triggerConfig)
	s.act("/tenants/{tenant}/configs/{config}/reschedule", s.rescheduleConfig)
	s.act("/tenants/{tenant}/configs/{config}/delete", s.deleteConfig)
}

// version is the version of the config in the form; 0 without one.
func (v *visit) version() int32 {
	n, err := strconv.ParseInt(v.field("version"), 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// configs is the list of configs.
func (s *Web) configs(v *visit) (view.Page, error) {
	f := filters{v: v}
	m := view.ConfigsModel{
		Scope: v.scope, State: f.one("state", "ACTIVE", "PAUSED", "DISABLED", "FAILING"), Pipeline: v.query("pipeline"), Label: v.query("label"), Prefix: v.query("prefix"),
		MayWrite: v.may(access.ConfigsWrite),
	}
	if m.Invalid = f.Invalid; m.Invalid != "" {
		m.First = true
		return view.Page{Title: "Configs", Section: "configs", Body: view.Configs(m)}, nil
	}
	req := &servov1.ListConfigsRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline, NamePrefix: m.Prefix, Failing: m.State == "FAILING", WithRecent: true,
		State: servov1.Config_State(servov1.Config_State_value[m.State]), PageSize: rowsOfList, PageToken: v.token(),
	}
	if m.Label != "" {
		req.Label = []string{m.Label}
	}
	list, err := s.api.configs.ListConfigs(v.ctx, req)
	if err != nil && m.Label != "" && hasCode(err, fault.InvalidArgument) {
		// The visitor corrects the label on this page.
		_, doc := docOf(err)
		m.Invalid, err = "The label "+doc.Message+": "+doc.Remedy+".", nil
	}
	if err != nil {
		return view.Page{}, err
	}
	m.Configs, m.Paging = list.GetConfigs(), v.paging(list.GetNextPageToken())
	return view.Page{Title: "Configs", Section: "configs", Live: m.First, Body: view.Configs(m)}, nil
}
