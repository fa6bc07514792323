-- Health of a ServiceTier for Argo CD.
--
-- Healthy means: what Git asks for serves, and is measured. What the loop does on top of it (a scale-up, a live resize,
-- a burning error budget) is not a matter of deployment: it is told in the message, by `kubectl` and by alerts.
-- Only the base library is used: Argo CD opens no more for a script from argocd-cm.

local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(kind, wanted)
  return conditions[kind] ~= nil and conditions[kind].status == wanted
end

local function words(kind)
  local condition = conditions[kind]
  if condition == nil then
    return kind .. " is not known yet"
  end
  local message = condition.message or ""
  if message == "" then
    return condition.reason
  end
  return condition.reason .. ": " .. message
end

local function health(verdict, message)
  return {status = verdict, message = message}
end

-- The CRD starts every status at observedGeneration -1, so a tier that nobody has looked at ends here too.
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "waiting for the operator to look at the present spec")
end
if is("Stalled", "True") then
  return health("Degraded", words("Stalled"))
end
if obj.spec.scaling.mode == "Paused" then
  return health("Suspended", "spec.scaling.mode is Paused; " .. words("Ready"))
end
if is("Reconciling", "True") then
  return health("Progressing", words("Reconciling"))
end
if not is("Ready", "True") or conditions.Ready.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", words("Ready"))
end
-- It serves. Without metrics its promise is not kept by anybody: every lever is held.
if is("MetricsAvailable", "False") then
  return health("Degraded", words("MetricsAvailable"))
end
if not is("MetricsAvailable", "True") then
  return health("Progressing", words("MetricsAvailable"))
end
-- A live resize takes seconds and is no change of health; one that a pod does not obey needs a person.
if is("Resizing", "True") and conditions.Resizing.reason == "NotApplied" then
  return health("Degraded", words("Resizing"))
end

local message = words("Ready")
for _, worth in ipairs({{"SLOMet", "False"}, {"ScalingLimited", "True"}, {"BudgetFrozen", "True"}}) do
  if is(worth[1], worth[2]) then
    message = message .. "; " .. words(worth[1])
  end
end
return health("Healthy", message)
