//! Checks rephrasing (responses that need a rephraser) and translations (languages that are not configured).

use super::super::{Nlg, Project};
use crate::finding::{Findings, did_you_mean};

pub(super) fn check(project: &Project, findings: &mut Findings) {
    let rephrases = matches!(project.endpoints.nlg, Some(Nlg::Rephraser(_)));
    let config = &project.config;
    let languages = || std::iter::once(&*config.language).chain(config.additional_languages.iter().map(|l| &**l));
    let is_unknown = |language: &str| !languages().any(|known| known == language);
    let help = |language: &str| match did_you_mean(language, languages()) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!("Add `{language}` to `additional_languages` of `config.yml`, or remove the translation."),
    };
    for response in project.domain.responses.values().filter(|response| !response.builtin) {
        if !rephrases && response.variations.iter().any(|variation| variation.rephrase == Some(true)) {
            let message =
                format!("`{}` has `rephrase: true`, but there is no rephraser; it is sent unchanged", response.name);
            let fix = "Add `nlg: {type: rephrase}` to `endpoints.yml`, or remove `rephrase`.";
            findings.note("F0340", &response.place, message, fix);
        }
        let texts = response.variations.iter().flat_map(|variation| &variation.translations);
        for (language, _) in texts.filter(|(language, _)| is_unknown(language)) {
            let message = format!(
                "`{}` is translated into `{language}`, which is not a language of the assistant",
                response.name
            );
            findings.warning("F0341", &response.place, message, help(language));
        }
    }
    for flow in project.user_flows() {
        for (language, _) in flow.translations.iter().filter(|(language, _)| is_unknown(language)) {
            let message = format!(
                "the name of the flow `{}` is translated into `{language}`, which is not a language of the assistant",
                flow.id
            );
            findings.warning("F0341", &flow.place, message, help(language));
        }
    }
}
