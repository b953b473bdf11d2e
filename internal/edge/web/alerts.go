package web

import (
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// alertRoutes are the pages of alerts and alert channels.
func (s *Web) alertRoutes() {
	s.show("/alerts", s.alerts)
	s.act("/alerts/channels", s.createChannel)
	s.act("/alerts/channels/{channel}/delete", s.deleteChannel)
	s.act("/tenants/{tenant}/alerts/channels", s.createChannel)
	s.act("/tenants/{tenant}/alerts/channels/{channel}/delete", s.deleteChannel)
}

// alerts lists open and resolved alerts of a tenant. Without a tenant it lists the open alerts of all
// tenants and the resolved alerts of the installation.
func (s *Web) alerts(v *visit) (view.Page, error) {
	tenant := v.scope.Tenant
	m := view.AlertsModel{Scope: v.scope, Kind: v.query("kind"), State: v.query("state"), MayChannels: v.may(access.SubscriptionsManage), Paging: v.paging("")}
	if id := v.query("alert"); id != "" {
		one, err := s.api.alerts.GetAlert(v.ctx, &servov1.GetAlertRequest{Tenant: tenant, Alert: id})
		return view.Page{Title: "Alert", Section: "alerts", Live: true, Body: view.Alert(v.scope, one)}, err
	}
	if m.First {
		open, err := s.api.alerts.ListAlerts(v.ctx, &servov1.ListAlertsRequest{Tenant: tenant, AllTenants: tenant == "", Open: true, Kind: m.Kind, PageSize: rowsOfOpen})
		if err != nil {
			return view.Page{}, err
		}
		m.Open, m.MoreOpen = open.GetAlerts(), open.GetNextPageToken() != ""
	}
	if m.State != "open" {
		list, err := s.api.alerts.ListAlerts(v.ctx, &servov1.ListAlertsRequest{Tenant: tenant, Kind: m.Kind, PageSize: rowsOfList, PageToken: v.token()})
		if err != nil {
			return view.Page{}, err
		}
		m.Paging = v.paging(list.GetNextPageToken())
		for _, a := range list.GetAlerts() {
			if a.GetResolvedAt() != nil {
				m.Resolved = append(m.Resolved, a)
			}
		}
	}
	if v.may(access.SubscriptionsRead) {
		list, err := s.api.alerts.ListAlertChannels(v.ctx, &servov1.ListAlertChannelsRequest{Tenant: tenant})
		if err != nil {
			return view.Page{}, err
		}
		m.Channels, m.SeesChannels = list.GetChannels(), true
	}
	return view.Page{Title: "Alerts", Section: "alerts", Live: m.First, Body: view.Alerts(m)}, nil
}

// rowsOfOpen is the number of open alerts on the page; there are seldom many.
const rowsOfOpen = 100

// alertsAt is the tenant in the path of an action on channels, and the address of its alerts.
func alertsAt(v *visit) (tenant, at string) {
	tenant = v.PathValue("tenant")
	return tenant, view.Scope{Tenant: tenant}.At("/ui/alerts")
}

func (s *Web) createChannel(v *visit) (done, error) {
	tenant, at := alertsAt(v)
	made, err := s.api.alerts.CreateAlertChannel(v.ctx, &servov1.CreateAlertChannelRequest{
		Tenant: tenant, Name: v.field("name"), Url: v.field("url"),
		Severity: servov1.Alert_Severity(servov1.Alert_Severity_value[v.field("severity")]),
	})
	if err != nil {
		return done{}, err
	}
	return secretOnce("Channel "+made.GetChannel().GetName()+" created", "Servo signs messages with it. The receiver verifies the header webhook-signature.", made.GetSecret(), at, "alerts"), nil
}

func (s *Web) deleteChannel(v *visit) (done, error) {
	tenant, at := alertsAt(v)
	_, err := s.api.alerts.DeleteAlertChannel(v.ctx, &servov1.DeleteAlertChannelRequest{Tenant: tenant, Channel: v.PathValue("channel")})
	return done{To: at, Notice: "Channel " + v.PathValue("channel") + " deleted."}, err
}
