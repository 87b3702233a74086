{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- /* Names and labels. `toYaml` quotes a name that would be read as a number. */ -}}

{{- define "roofline-exporter.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "roofline-exporter.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* Whole: these may be longer than 63 characters, and two releases must not have the same. */ -}}
{{- define "roofline-exporter.suffixed" -}}
{{- printf "%s-%s" (include "roofline-exporter.fullname" .context) .suffix -}}
{{- end -}}

{{- define "roofline-exporter.serviceAccountName" -}}
{{- default (ternary (include "roofline-exporter.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "roofline-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "roofline-exporter.name" . | toYaml }}
app.kubernetes.io/instance: {{ .Release.Name | toYaml }}
{{- end -}}

{{- define "roofline-exporter.labels" -}}
{{ include "roofline-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- /* The head of every object. Without an override the release's namespace holds: `kubectl apply -n`. */ -}}
{{- define "roofline-exporter.metadata" -}}
name: {{ .name | default (include "roofline-exporter.fullname" .context) | toYaml }}
{{- with .namespace | default .context.Values.namespaceOverride }}
namespace: {{ toYaml . }}
{{- end }}
labels:
  {{- merge (dict) (.labels | default dict) (include "roofline-exporter.labels" .context | fromYaml) | toYaml | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The container */ -}}

{{- define "roofline-exporter.image" -}}
{{- with .Values.image -}}
{{- .repository }}:{{ default $.Chart.AppVersion .tag }}{{ with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "roofline-exporter.port" -}}
{{- .Values.service.address | splitList ":" | last -}}
{{- end -}}

{{- /* What the user gives laid over what the chart has, without the keys that are null. */ -}}
{{- define "roofline-exporter.laidOver" -}}
{{- $all := mergeOverwrite (deepCopy .own) (deepCopy .given) -}}
{{- range $key, $value := .given }}{{ if kindIs "invalid" $value }}{{ $_ := unset $all $key }}{{ end }}{{ end -}}
{{- toYaml $all -}}
{{- end -}}

{{- define "roofline-exporter.podSecurityContext" -}}
{{- $own := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if .Values.kubernetes.enabled }}{{ $own = mergeOverwrite $own (dict "runAsNonRoot" false "runAsUser" 0) }}{{ end -}}
{{- if include "roofline-exporter.webSecret" . }}{{ $_ := set $own "fsGroup" 65532 }}{{ end -}}
{{- include "roofline-exporter.laidOver" (dict "own" $own "given" .Values.podSecurityContext) -}}
{{- end -}}

{{- define "roofline-exporter.securityContext" -}}
{{- $own := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- include "roofline-exporter.laidOver" (dict "own" $own "given" .Values.securityContext) -}}
{{- end -}}

{{- define "roofline-exporter.probe" -}}
{{- $own := dict "httpGet" (dict "path" "/-/healthy" "port" "metrics" "scheme" (include "roofline-exporter.scheme" .context)) -}}
{{- if eq .context.Values.tlsServerConfig.clientAuthType "RequireAndVerifyClientCert" -}}
{{- $own = dict "tcpSocket" (dict "port" "metrics") -}}
{{- end -}}
{{- range list "httpGet" "tcpSocket" "exec" "grpc" }}{{ if hasKey $.given . }}{{ $own = dict }}{{ end }}{{ end -}}
{{- toYaml (merge (deepCopy .given) $own) -}}
{{- end -}}

{{- /* Managers of the driver and of MIG wait for pods that select on the label which they pause. */ -}}
{{- define "roofline-exporter.nodeSelector" -}}
{{- $own := dict -}}
{{- if .Values.dra.enabled }}{{ $own = dict "nvidia.com/gpu.deploy.dcgm-exporter-dra" "true" -}}
{{- else if .Values.gpuOperator.clientLabel }}{{ $own = dict "nvidia.com/gpu.deploy.client" "true" }}{{ end -}}
{{- include "roofline-exporter.laidOver" (dict "own" $own "given" .Values.nodeSelector) -}}
{{- end -}}

{{- /*
Where a manager pauses the label the pod leaves; where nobody sets it, it does not count. Nobody waits
for a pod because of its affinity. The terms of a list are alternatives and the expressions within one
are not, so each term of the user is there once with either.
*/ -}}
{{- define "roofline-exporter.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default (dict "nodeSelectorTerms" (list (dict))) -}}
{{- $label := "nvidia.com/gpu.deploy.client" -}}
{{- $mayStay := list (dict "key" $label "operator" "In" "values" (list "true")) (dict "key" $label "operator" "DoesNotExist") -}}
{{- $terms := list -}}
{{- range $term := $required.nodeSelectorTerms }}
{{- range $expression := $mayStay }}
{{- $expressions := append ($term.matchExpressions | default list) $expression }}
{{- $terms = append $terms (merge (dict "matchExpressions" $expressions) (omit $term "matchExpressions")) }}
{{- end }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- toYaml $affinity -}}
{{- end -}}

{{- /* Environment, mounts and volumes that the chart itself needs, each as a list. */ -}}

{{- define "roofline-exporter.kubernetes.podsApi" -}}
{{- if and .Values.kubernetes.enabled (or .Values.kubernetes.enablePodUID .Values.kubernetes.enablePodLabels) }}yes{{ end -}}
{{- end -}}

{{- define "roofline-exporter.env" -}}
# The host's name on /metrics/dcgm; a pod's own is the pod's.
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
# GPUs that this pod itself is given, to watch them, are in nobody's use.
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
{{- if not (contains "ROOFLINE_METRICS_LEVEL" (toJson .Values.extraEnv)) }}
- {name: ROOFLINE_METRICS_LEVEL, value: {{ .Values.metricsLevel }}}
{{- end }}
{{- if ne .Values.service.address ":19400" }}
- {name: ROOFLINE_WEB_LISTEN_ADDRESS, value: {{ .Values.service.address | quote }}}
{{- end }}
{{- if not .Values.kubernetes.enabled }}
- {name: ROOFLINE_SOURCE_KUBERNETES, value: "false"}
{{- else if .Values.kubernetes.enablePodLabels }}
- name: ROOFLINE_KUBERNETES_POD_LABELS
  value: {{ join "|" .Values.kubernetes.podLabelAllowlistRegex | default ".*" | quote }}
{{- end }}
# Jobs have no way to the socket unless training.enabled opens one.
- {name: ROOFLINE_SOURCE_TRAINING, value: {{ .Values.training.enabled | toString | quote }}}
{{- if .Values.training.enabled }}
- {name: ROOFLINE_TRAINING_SOCKET, value: {{ printf "%s/training.sock" .Values.training.directory | quote }}}
{{- end }}
{{- if include "roofline-exporter.webSecret" . }}
- {name: ROOFLINE_WEB_CONFIG_FILE, value: /etc/roofline-exporter/web/web.yml}
{{- end }}
{{- end -}}

{{- define "roofline-exporter.volumeMounts" -}}
{{- if .Values.kubernetes.enabled }}
# The folder, not the socket: a restarted kubelet makes a new socket.
- {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
{{- end }}
{{- if include "roofline-exporter.kubernetes.podsApi" . }}
- {name: pods-api, mountPath: /var/lib/kubelet/pods-api, readOnly: true}
{{- end }}
{{- if .Values.training.enabled }}
- {name: training, mountPath: {{ .Values.training.directory | quote }}}
{{- end }}
{{- if include "roofline-exporter.webSecret" . }}
- {name: web, mountPath: /etc/roofline-exporter/web, readOnly: true}
{{- end }}
{{- if .Values.tlsServerConfig.enabled }}
- {name: tls, mountPath: /etc/roofline-exporter/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "roofline-exporter.volumes" -}}
{{- if .Values.kubernetes.enabled }}
- name: pod-resources
  hostPath: {path: {{ .Values.kubeletPath | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- if include "roofline-exporter.kubernetes.podsApi" . }}
- name: pods-api
  hostPath: {path: {{ printf "%s/pods-api" (dir (trimSuffix "/" .Values.kubeletPath)) | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- if .Values.training.enabled }}
- name: training
  hostPath: {path: {{ .Values.training.directory | quote }}, type: DirectoryOrCreate}
{{- end }}
{{- if .Values.gpuOperator.waitForToolkit }}
- name: validations
  hostPath: {path: /run/nvidia/validations, type: DirectoryOrCreate}
{{- end }}
{{- with include "roofline-exporter.webSecret" . }}
- name: web
  secret: {secretName: {{ toYaml . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.tlsServerConfig.enabled }}
- name: tls
  secret: {secretName: {{ include "roofline-exporter.tlsSecret" . | toYaml }}, defaultMode: 0440}
{{- end }}
{{- range .Values.extraHostVolumes }}
- name: {{ .name | toYaml }}
  hostPath: {path: {{ .hostPath | quote }}}
{{- end }}
{{- with concat .Values.extraConfigMapVolumes .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* HTTPS and passwords */ -}}

{{- define "roofline-exporter.scheme" -}}
{{- if .Values.webConfig.existingSecret }}{{ .Values.webConfig.scheme }}{{ else }}{{ ternary "HTTPS" "HTTP" .Values.tlsServerConfig.enabled }}{{ end -}}
{{- end -}}

{{- /* The Secret with web.yml; nothing where the page is open. */ -}}
{{- define "roofline-exporter.webSecret" -}}
{{- if .Values.webConfig.existingSecret -}}
{{- .Values.webConfig.existingSecret -}}
{{- else if or .Values.tlsServerConfig.enabled .Values.basicAuth.users -}}
{{- include "roofline-exporter.suffixed" (dict "context" . "suffix" "web") -}}
{{- end -}}
{{- end -}}

{{- define "roofline-exporter.tlsSecret" -}}
{{- .Values.tlsServerConfig.existingSecret | default (include "roofline-exporter.suffixed" (dict "context" . "suffix" "tls")) -}}
{{- end -}}

{{- /* One user's hash; a hash that is given stays. */ -}}
{{- define "roofline-exporter.hash" -}}
{{- if regexMatch "^\\$2[aby]\\$[0-9]{2}\\$.{53}$" .password -}}
{{- .password -}}
{{- else if gt (len .password) 72 -}}
{{- fail (printf "basicAuth.users.%s: a password has at most 72 bytes" .user) -}}
{{- else -}}
{{- htpasswd .user .password | splitList ":" | last -}}
{{- end -}}
{{- end -}}

{{- /* What a ServiceMonitor and a PodMonitor have in common */ -}}

{{- define "roofline-exporter.endpoints" -}}
{{- range $path := ternary (list "/metrics" "/metrics/dcgm") (list "/metrics") .monitor.dcgm }}
- port: metrics
  path: {{ $path }}
  interval: {{ $.monitor.interval }}
  scrapeTimeout: {{ $.monitor.scrapeTimeout }}
  honorLabels: {{ $.monitor.honorLabels }}
  scheme: {{ include "roofline-exporter.scheme" $.context | lower }}
  {{- with include "roofline-exporter.tlsConfig" $ }}
  tlsConfig:
    {{- . | nindent 4 }}
  {{- end }}
  {{- with $.monitor.basicAuth }}
  basicAuth:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  relabelings:
    # A pod's address changes with every restart, and with it every series.
    - {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: instance}
    {{- if ne $path "/metrics" }}
    # Else both would be one target, with one `up`.
    - {sourceLabels: [__metrics_path__], targetLabel: metrics_path}
    {{- end }}
    {{- with $.monitor.relabelings }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $.monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- /* The monitor's own; else that of the certificate that the chart made. */ -}}
{{- define "roofline-exporter.tlsConfig" -}}
{{- $tls := .context.Values.tlsServerConfig -}}
{{- if .monitor.tlsConfig -}}
{{- toYaml .monitor.tlsConfig -}}
{{- else if and $tls.enabled $tls.autoGenerated (not $tls.existingSecret) -}}
ca: {secret: {name: {{ include "roofline-exporter.tlsSecret" .context }}, key: {{ $tls.caFilename | toYaml }}}}
serverName: {{ include "roofline-exporter.fullname" .context | toYaml }}
{{- end -}}
{{- end -}}

{{- /* What no schema can say: which keys go together, and where those of dcgm-exporter's chart went. */ -}}
{{- define "roofline-exporter.check" -}}
{{- $tls := .Values.tlsServerConfig -}}
{{- if and .Values.webConfig.existingSecret (or $tls.enabled .Values.basicAuth.users) -}}
{{- fail "webConfig.existingSecret: has everything itself, so it goes neither with tlsServerConfig.enabled nor with basicAuth.users" -}}
{{- end -}}
{{- if and $tls.clientAuthType (ne $tls.clientAuthType "NoClientCert") (not $tls.existingSecret) (not $tls.ca) -}}
{{- fail "tlsServerConfig.clientAuthType: needs the authority that signs clients, in tlsServerConfig.ca or tlsServerConfig.existingSecret" -}}
{{- end -}}
{{- if and $tls.enabled (not $tls.existingSecret) (not $tls.autoGenerated) (not (and $tls.cert $tls.key)) -}}
{{- fail "tlsServerConfig: cert and key are needed, or existingSecret, or autoGenerated" -}}
{{- end -}}
{{- if and .Values.dra.enabled (semverCompare "<1.34-0" .Capabilities.KubeVersion.Version) -}}
{{- fail "dra.enabled: needs Kubernetes 1.34 or newer" -}}
{{- end -}}
{{- range .Values.arguments }}{{ if not (regexMatch "^--[a-z]" .) -}}
{{- fail (printf "arguments: %q is no flag of this exporter, each of which is one word, --flag=value; docs/dcgm.md and docs/helm.md#coming-from-dcgm-exporter say what takes the place of dcgm-exporter's" .) -}}
{{- end }}{{ end -}}
{{- /* Port and probes follow the value, and a flag or a variable goes before it. */ -}}
{{- range $flag, $value := dict "web.listen-address" "service.address" "web.config.file" "webConfig.existingSecret" -}}
{{- range $.Values.arguments }}{{ if regexMatch (printf "^--%s(=|$)" $flag) . -}}
{{- fail (printf "arguments: --%s is %s here, so that port and probes follow" $flag $value) -}}
{{- end }}{{ end -}}
{{- $variable := printf "ROOFLINE_%s" ($flag | upper | replace "." "_" | replace "-" "_") -}}
{{- range $.Values.extraEnv }}{{ if eq .name $variable -}}
{{- fail (printf "extraEnv: %s is %s here, so that port and probes follow" $variable $value) -}}
{{- end }}{{ end -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled, podMonitor.enabled: with both, every exporter is scraped twice and every GPU counted twice; set one of them to false" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enable) -}}
{{- fail "serviceMonitor.enabled: needs service.enable; podMonitor.enabled does not" -}}
{{- end -}}
{{- end -}}

{{- /* One series for each GPU model, as deploy/prometheus/prices.py makes them of prices.yml. */ -}}
{{- define "roofline-exporter.prices" -}}
{{- $series := list -}}
{{- range $name, $price := .Values.prometheusRule.pricePerGpuHour -}}
{{- $series = append $series (printf "label_replace(vector(%v), \"name\", %q, \"\", \"\")" $price $name) -}}
{{- end -}}
{{- join "\nor\n" $series -}}
{{- end -}}
